/* What every function here returns that can fail; conv_text gives the words. */
enum {
    CONV_OK = 0,
    CONV_BAD_ARGUMENT = 1,
    CONV_MISALIGNED = 2,
    CONV_NO_WORKSPACE = 3,
    CONV_NO_MEMORY = 4,
    CONV_NOT_SUPPORTED = 5,
    CONV_CUDNN_FAILED = 6,
    CONV_CUDA_FAILED = 7,
    CONV_OTHER_CUDNN = 8
};

/* One sentence for a code. */
const char *conv_text(int code);

/* The call of cuDNN or CUDA that failed last in this thread: its name, its status, what the library calls that status,
   and what else it said, which may be nothing. The words last until the next failure in this thread. */
typedef struct conv_failure {
    const char *call;
    int status;
    const char *status_name;
    const char *said;
} conv_failure;

conv_failure conv_last_failure(void);
