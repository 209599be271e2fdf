/* ---- The convolution and its epilogue as operations of cuDNN ---- */

static int make_tensor(struct owned *owned, const struct tensor *tensor, cudnnDataType_t type, int64_t alignment,
                       int64_t uid, descriptor *made)
{
    bool is_virtual = uid >= FIRST_VIRTUAL_UID; /* it is not stored */
    TRY(make(owned, CUDNN_BACKEND_TENSOR_DESCRIPTOR, made));
    TRY(set_numbers(*made, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid));
    TRY(set(*made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TRY(set_numbers(*made, CUDNN_ATTR_TENSOR_DIMENSIONS, tensor->dims, tensor->sizes));
    TRY(set_numbers(*made, CUDNN_ATTR_TENSOR_STRIDES, tensor->dims, tensor->strides));
    TRY(set_numbers(*made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment));
    TRY(set(*made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual));
    return finalize(*made);
}

static int make_operand(struct owned *owned, const struct problem *problem, const struct tensor *tensor, int64_t uid,
                        descriptor *made)
{
    return make_tensor(owned, tensor, problem->stored, tensor->alignment, uid, made);
}

static int make_between(struct owned *owned, const struct problem *problem, int step, descriptor *made)
{
    return make_tensor(owned, out_of(problem), problem->computed, 16, FIRST_VIRTUAL_UID + step, made);
}

static int make_window(struct owned *owned, const struct problem *problem, descriptor *made)
{
    cudnnConvolutionMode_t mode = problem->flip ? CUDNN_CONVOLUTION : CUDNN_CROSS_CORRELATION;
    int64_t spatial = problem->spatial;
    TRY(make(owned, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, made));
    TRY(set(*made, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &problem->computed));
    TRY(set(*made, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    TRY(set_numbers(*made, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &spatial));
    TRY(set_numbers(*made, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spatial, problem->stride));
    TRY(set_numbers(*made, CUDNN_ATTR_CONVOLUTION_DILATIONS, spatial, problem->dilation));
    TRY(set_numbers(*made, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, spatial, problem->before));
    TRY(set_numbers(*made, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, spatial, problem->after));
    return finalize(*made);
}

/* Scaling factors have the type of the computation. */
static int set_scale(descriptor operation, cudnnBackendAttributeName_t name, const struct problem *problem,
                     double value)
{
    float single_value = (float)value;
    if (problem->computed == CUDNN_DATA_DOUBLE)
        return set(operation, name, CUDNN_TYPE_DOUBLE, 1, &value);
    return set(operation, name, CUDNN_TYPE_FLOAT, 1, &single_value);
}

static int make_convolution(struct owned *owned, const struct problem *problem, const descriptor *operands,
                            descriptor result, descriptor *made)
{
    const struct wording *words = &WORDING[problem->direction];
    descriptor window;
    TRY(make_window(owned, problem, &window));
    TRY(make(owned, words->operation, made));
    TRY(set_part(*made, words->window, window));
    TRY(set_scale(*made, words->alpha, problem, 1.0));
    TRY(set_scale(*made, words->beta, problem, 0.0));
    TRY(set_part(*made, words->first, operands[FIRST]));
    TRY(set_part(*made, words->second, operands[SECOND]));
    TRY(set_part(*made, words->out, result));
    return finalize(*made);
}

static int make_pointwise(struct owned *owned, const struct problem *problem, cudnnPointwiseMode_t mode,
                          descriptor source, descriptor added, descriptor target, descriptor *made)
{
    descriptor function;
    TRY(make(owned, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &function));
    TRY(set(function, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    TRY(set(function, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &problem->computed));
    TRY(finalize(function));
    TRY(make(owned, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, made));
    TRY(set_part(*made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function));
    TRY(set_part(*made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, source));
    TRY(set_part(*made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, target));
    if (added != NULL)
        TRY(set_part(*made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, added));
    return finalize(*made);
}

/* Add an operand to the plan, and make its tensor. */
static int add_operand(struct graph_plan *plan, int place, const struct tensor *tensor, int64_t uid,
                       descriptor *operands)
{
    plan->places[plan->operand_count] = place;
    plan->uids[plan->operand_count++] = uid;
    return make_operand(&plan->owned, plan->problem, tensor, uid, &operands[place]);
}

static int add_operands(struct graph_plan *plan, descriptor *operands)
{
    const struct problem *problem = plan->problem;
    const struct wording *words = &WORDING[problem->direction];
    TRY(add_operand(plan, FIRST, first_of(problem), words->first_uid, operands));
    TRY(add_operand(plan, SECOND, second_of(problem), words->second_uid, operands));
    if (fused(problem))
        TRY(add_operand(plan, BIAS, &problem->bias, UID_BIAS, operands));
    if (problem->residual)
        TRY(add_operand(plan, RESIDUAL, &problem->y, UID_RESIDUAL, operands));
    return add_operand(plan, OUT, out_of(problem), words->out_uid, operands);
}

/* The convolution and its epilogue, in the order of cuDNN's precompiled pattern: another order would be compiled at run
   time or refused. */
static int make_graph(struct graph_plan *plan, cudnnHandle_t handle, descriptor *graph)
{
    const struct problem *problem = plan->problem;
    struct owned *owned = &plan->owned;
    descriptor operands[PLACES] = {NULL}, added[MOST_STEPS], results[MOST_STEPS + 1], operations[MOST_STEPS + 1];
    int steps = 0, step;
    TRY(add_operands(plan, operands));
    if (problem->residual)
        added[steps++] = operands[RESIDUAL];
    if (fused(problem))
        added[steps++] = operands[BIAS];
    if (problem->relu)
        added[steps++] = NULL;
    for (step = 0; step < steps; step++)
        TRY(make_between(owned, problem, step, &results[step]));
    results[steps] = operands[OUT];
    TRY(make_convolution(owned, problem, operands, results[0], &operations[0]));
    for (step = 0; step < steps; step++)
        TRY(make_pointwise(owned, problem, added[step] != NULL ? CUDNN_POINTWISE_ADD : CUDNN_POINTWISE_RELU_FWD,
                           results[step], added[step], results[step + 1], &operations[step + 1]));
    TRY(make(owned, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph));
    TRY(set(*graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, steps + 1, operations));
    TRY(set(*graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
    return finalize(*graph);
}
