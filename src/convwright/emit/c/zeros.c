static int set_to_zero(void *pointer, size_t bytes)
{
    CUDA(cudaMemset, (pointer, 0, bytes));
    CUDA(cudaStreamSynchronize, (NULL)); /* other streams need not wait for the default one */
    return CONV_OK;
}

/* The zero bias of a problem without a bias, which cuDNN adds. It is set only once it holds zeros. */
static int make_zeros(const struct problem *problem, void **zeros)
{
    size_t bytes = (size_t)problem->bias.sizes[1] * (size_t)problem->element_bytes;
    void *made = NULL;
    int code;
    CUDA(cudaMalloc, (&made, bytes));
    code = set_to_zero(made, bytes);
    if (code == CONV_OK)
        *zeros = made;
    else
        (void)cudaFree(made);
    return code;
}
