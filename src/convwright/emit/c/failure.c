/* ---- Codes, and the last failure ---- */

#ifdef __cplusplus
#define THREAD_LOCAL thread_local
#else
#define THREAD_LOCAL _Thread_local
#endif

static THREAD_LOCAL const char *failed_call = "";
static THREAD_LOCAL const char *failed_name = "";
static THREAD_LOCAL int failed_status = 0;
static THREAD_LOCAL char failed_said[512];

/* Call a function of cuDNN, or one of ours, and return its failure from the current function. */
#define CUDNN(function, arguments)                                                                                     \
    do {                                                                                                               \
        cudnnStatus_t status_ = function arguments;                                                                    \
        if (status_ != CUDNN_STATUS_SUCCESS)                                                                           \
            return cudnn_failed(#function, status_);                                                                   \
    } while (0)
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        int code_ = (call);                                                                                            \
        if (code_ != CONV_OK)                                                                                          \
            return code_;                                                                                              \
    } while (0)

static int cudnn_failed(const char *call, cudnnStatus_t status)
{
    failed_call = call;
    failed_status = (int)status;
    failed_name = cudnnGetErrorString(status);
    cudnnGetLastErrorString(failed_said, sizeof failed_said);
    return failed_status / 1000 == 3 ? CONV_NOT_SUPPORTED : CONV_CUDNN_FAILED;
}

conv_failure conv_last_failure(void)
{
    conv_failure last;
    last.call = failed_call;
    last.status = failed_status;
    last.status_name = failed_name;
    last.said = failed_said;
    return last;
}

const char *conv_text(int code)
{
    switch (code) {
    case CONV_OK:
        return "success";
    case CONV_BAD_ARGUMENT:
        return "an argument is missing, unexpected or out of range: see the header";
    case CONV_MISALIGNED:
        return "a pointer is not aligned: see the header for its alignment";
    case CONV_NO_WORKSPACE:
        return "the workspace is missing or too small: conv_workspace_bytes gives its size";
    case CONV_NO_MEMORY:
        return "the host is out of memory";
    case CONV_NOT_SUPPORTED:
        return "cuDNN does not support this; conv_last_failure gives the reason";
    case CONV_CUDNN_FAILED:
        return "a call of cuDNN failed; conv_last_failure gives the reason";
    case CONV_CUDA_FAILED:
        return "a call of CUDA failed; conv_last_failure gives the reason";
    case CONV_OTHER_CUDNN:
        return "the engine was chosen for another version of cuDNN, so its number may be wrong: emit the file again";
    default:
        return "an unknown code";
    }
}
