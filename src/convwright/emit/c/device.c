/* ---- CUDA, for memory on the device ---- */

#define CUDA(function, arguments)                                                                                      \
    do {                                                                                                               \
        cudaError_t error_ = function arguments;                                                                       \
        if (error_ != cudaSuccess)                                                                                     \
            return cuda_failed(#function, error_);                                                                     \
    } while (0)

static int cuda_failed(const char *call, cudaError_t error)
{
    (void)cudaGetLastError(); /* clear it, or the caller's next CUDA call would report it */
    failed_call = call;
    failed_status = (int)error;
    failed_name = cudaGetErrorName(error);
    failed_said[0] = '\0';
    strncat(failed_said, cudaGetErrorString(error), sizeof failed_said - 1);
    return CONV_CUDA_FAILED;
}
