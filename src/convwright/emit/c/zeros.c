/* The bias of a problem that has none, where cuDNN always adds one. */
static int make_zeros(const struct problem *problem, void **zeros)
{
    size_t bytes = (size_t)problem->bias.sizes[1] * (size_t)problem->element_bytes;
    CUDA(cudaMalloc, (zeros, bytes));
    CUDA(cudaMemset, (*zeros, 0, bytes));
    CUDA(cudaStreamSynchronize, (NULL)); /* other streams need not wait for the default one */
    return CONV_OK;
}
