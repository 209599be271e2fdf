/* ---- An algorithm of cuDNN's classic API ---- */

/* The number of the direction's algorithm, and the layout of the dense weight. */
struct classic_choice {
    int algorithm;
    cudnnMathType_t math;
    cudnnTensorFormat_t weight_format;
};

struct classic_plan {
    const struct problem *problem;
    int algorithm;
    size_t workspace_bytes;
    cudnnTensorDescriptor_t x, y, bias;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t window;
    cudnnActivationDescriptor_t activation;
};

/* Numbers as ints, which this API takes; fails if one is too large. */
static int narrow(int *narrowed, const int64_t *wide, int count)
{
    int i;
    for (i = 0; i < count; i++) {
        if (wide[i] > INT32_MAX)
            return CONV_BAD_ARGUMENT;
        narrowed[i] = (int)wide[i];
    }
    return CONV_OK;
}

static int describe_tensor(cudnnTensorDescriptor_t *made, const struct tensor *tensor, cudnnDataType_t type)
{
    int sizes[MOST_DIMS], strides[MOST_DIMS];
    TRY(narrow(sizes, tensor->sizes, tensor->dims));
    TRY(narrow(strides, tensor->strides, tensor->dims));
    CUDNN(cudnnCreateTensorDescriptor, (made));
    CUDNN(cudnnSetTensorNdDescriptor, (*made, type, tensor->dims, sizes, strides));
    return CONV_OK;
}

static int describe_weight(struct classic_plan *plan, const struct classic_choice *choice)
{
    const struct problem *problem = plan->problem;
    int sizes[MOST_DIMS];
    TRY(narrow(sizes, problem->w.sizes, problem->w.dims));
    CUDNN(cudnnCreateFilterDescriptor, (&plan->w));
    CUDNN(cudnnSetFilterNdDescriptor, (plan->w, problem->stored, choice->weight_format, problem->w.dims, sizes));
    return CONV_OK;
}

static int describe_window(struct classic_plan *plan, const struct classic_choice *choice)
{
    const struct problem *problem = plan->problem;
    cudnnConvolutionMode_t mode = problem->flip ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION;
    int padding[MOST_SPATIAL], stride[MOST_SPATIAL], dilation[MOST_SPATIAL], groups;
    TRY(narrow(padding, problem->before, problem->spatial));
    TRY(narrow(stride, problem->stride, problem->spatial));
    TRY(narrow(dilation, problem->dilation, problem->spatial));
    TRY(narrow(&groups, &problem->groups, 1));
    CUDNN(cudnnCreateConvolutionDescriptor, (&plan->window));
    CUDNN(cudnnSetConvolutionNdDescriptor,
          (plan->window, problem->spatial, padding, stride, dilation, mode, problem->computed));
    CUDNN(cudnnSetConvolutionGroupCount, (plan->window, groups));
    CUDNN(cudnnSetConvolutionMathType, (plan->window, choice->math));
    return CONV_OK;
}

static int describe_epilogue(struct classic_plan *plan)
{
    const struct problem *problem = plan->problem;
    cudnnActivationMode_t mode = problem->relu ? CUDNN_ACTIVATION_RELU : CUDNN_ACTIVATION_IDENTITY;
    TRY(describe_tensor(&plan->bias, &problem->bias, problem->stored));
    CUDNN(cudnnCreateActivationDescriptor, (&plan->activation));
    CUDNN(cudnnSetActivationDescriptor, (plan->activation, mode, CUDNN_PROPAGATE_NAN, 0.0));
    return CONV_OK;
}

/* This call fails if cuDNN does not support the algorithm. */
static int ask_workspace(struct classic_plan *plan, cudnnHandle_t handle)
{
    size_t *bytes = &plan->workspace_bytes;
    switch (plan->problem->direction) {
    case FORWARD:
        CUDNN(cudnnGetConvolutionForwardWorkspaceSize,
              (handle, plan->x, plan->w, plan->window, plan->y, (cudnnConvolutionFwdAlgo_t)plan->algorithm, bytes));
        break;
    case BACKWARD_DATA:
        CUDNN(cudnnGetConvolutionBackwardDataWorkspaceSize,
              (handle, plan->w, plan->y, plan->window, plan->x, (cudnnConvolutionBwdDataAlgo_t)plan->algorithm, bytes));
        break;
    default:
        CUDNN(cudnnGetConvolutionBackwardFilterWorkspaceSize,
              (handle, plan->x, plan->y, plan->window, plan->w, (cudnnConvolutionBwdFilterAlgo_t)plan->algorithm,
               bytes));
    }
    return CONV_OK;
}

static int classic_build(struct classic_plan *plan, const struct problem *problem, const struct classic_choice *choice,
                         cudnnHandle_t handle)
{
    plan->problem = problem;
    plan->algorithm = choice->algorithm;
    TRY(describe_tensor(&plan->x, &problem->x, problem->stored));
    TRY(describe_tensor(&plan->y, &problem->y, problem->stored));
    TRY(describe_weight(plan, choice));
    TRY(describe_window(plan, choice));
    if (fused(problem))
        TRY(describe_epilogue(plan));
    return ask_workspace(plan, handle);
}

/* Convolution, residual, bias, activation. A residual scaled by 0 is not read, but its address must be valid. */
static int run_fused(struct classic_plan *plan, cudnnHandle_t handle, const void *const *operands, const void *one,
                     const void *zero)
{
    bool residual = plan->problem->residual;
    CUDNN(cudnnConvolutionBiasActivationForward,
          (handle, one, plan->x, operands[FIRST], plan->w, operands[SECOND], plan->window,
           (cudnnConvolutionFwdAlgo_t)plan->algorithm, (void *)operands[WORKSPACE], plan->workspace_bytes,
           residual ? one : zero, plan->y, residual ? operands[RESIDUAL] : operands[OUT], plan->bias, operands[BIAS],
           plan->activation, plan->y, (void *)operands[OUT]));
    return CONV_OK;
}

static int classic_run(struct classic_plan *plan, cudnnHandle_t handle, const void *const *operands)
{
    /* Scaling factors have the type of the computation. */
    static const float ones[] = {1.0f, 0.0f};
    static const double long_ones[] = {1.0, 0.0};
    bool is_long = plan->problem->computed == CUDNN_DATA_DOUBLE;
    const void *one = is_long ? (const void *)&long_ones[0] : (const void *)&ones[0];
    const void *zero = is_long ? (const void *)&long_ones[1] : (const void *)&ones[1];
    void *out = (void *)operands[OUT], *workspace = (void *)operands[WORKSPACE];
    if (fused(plan->problem))
        return run_fused(plan, handle, operands, one, zero);
    switch (plan->problem->direction) {
    case FORWARD:
        CUDNN(cudnnConvolutionForward,
              (handle, one, plan->x, operands[FIRST], plan->w, operands[SECOND], plan->window,
               (cudnnConvolutionFwdAlgo_t)plan->algorithm, workspace, plan->workspace_bytes, zero, plan->y, out));
        break;
    case BACKWARD_DATA: /* here the weight comes first */
        CUDNN(cudnnConvolutionBackwardData,
              (handle, one, plan->w, operands[SECOND], plan->y, operands[FIRST], plan->window,
               (cudnnConvolutionBwdDataAlgo_t)plan->algorithm, workspace, plan->workspace_bytes, zero, plan->x, out));
        break;
    default:
        CUDNN(cudnnConvolutionBackwardFilter,
              (handle, one, plan->x, operands[FIRST], plan->y, operands[SECOND], plan->window,
               (cudnnConvolutionBwdFilterAlgo_t)plan->algorithm, workspace, plan->workspace_bytes, zero, plan->w, out));
    }
    return CONV_OK;
}

static void classic_release(struct classic_plan *plan)
{
    if (plan->x != NULL)
        (void)cudnnDestroyTensorDescriptor(plan->x);
    if (plan->y != NULL)
        (void)cudnnDestroyTensorDescriptor(plan->y);
    if (plan->bias != NULL)
        (void)cudnnDestroyTensorDescriptor(plan->bias);
    if (plan->w != NULL)
        (void)cudnnDestroyFilterDescriptor(plan->w);
    if (plan->window != NULL)
        (void)cudnnDestroyConvolutionDescriptor(plan->window);
    if (plan->activation != NULL)
        (void)cudnnDestroyActivationDescriptor(plan->activation);
}
