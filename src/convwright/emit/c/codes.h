/* The result of every function here that can fail; conv_text describes it. */
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

/* A sentence that describes a code. */
const char *conv_text(int code);

/* This thread's last failed call of cuDNN or CUDA: its name, its status, the library's name of that status, and its
   message, which may be empty. The texts are valid until the next failure in this thread. */
typedef struct conv_failure {
    const char *call;
    int status;
    const char *status_name;
    const char *said;
} conv_failure;

conv_failure conv_last_failure(void);
