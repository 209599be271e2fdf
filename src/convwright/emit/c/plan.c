/* ---- The object: PLAN(word) is graph_word or classic_word ---- */

struct conv_plan {
    cudnnHandle_t handle;
    cudaStream_t stream; /* of the handle */
    void *zeros;
    struct PLAN(plan) plan;
};

static int prepared(conv_plan *plan)
{
#if CHOSEN_WITH_CUDNN && !defined(CONV_ANY_CUDNN)
    if (cudnnGetVersion() != CHOSEN_WITH_CUDNN)
        return CONV_OTHER_CUDNN;
#endif
    CUDNN(cudnnCreate, (&plan->handle));
#if ADDS_ZEROS
    TRY(make_zeros(&PROBLEM, &plan->zeros));
#endif
    return PLAN(build)(&plan->plan, &PROBLEM, &CHOICE, plan->handle);
}

int conv_create(conv_plan **plan)
{
    conv_plan *made;
    int code;
    if (plan == NULL)
        return CONV_BAD_ARGUMENT;
    *plan = NULL;
    made = (conv_plan *)calloc(1, sizeof *made);
    if (made == NULL)
        return CONV_NO_MEMORY;
    code = prepared(made);
    if (code == CONV_OK)
        *plan = made;
    else
        conv_destroy(made);
    return code;
}

size_t conv_workspace_bytes(const conv_plan *plan)
{
    return plan == NULL ? 0 : plan->plan.workspace_bytes;
}

static int use_stream(conv_plan *plan, cudaStream_t stream)
{
    if (plan->stream != stream) {
        CUDNN(cudnnSetStream, (plan->handle, stream));
        plan->stream = stream;
    }
    return CONV_OK;
}

int conv_run(conv_plan *plan, const void *first, const void *second, const void *bias, const void *residual, void *out,
             void *workspace, struct CUstream_st *stream)
{
    const void *operands[PLACES];
    if (plan == NULL)
        return CONV_BAD_ARGUMENT;
    operands[FIRST] = first;
    operands[SECOND] = second;
    operands[BIAS] = bias;
    operands[RESIDUAL] = residual;
    operands[OUT] = out;
    /* An unneeded workspace would only make equal calls differ. */
    operands[WORKSPACE] = plan->plan.workspace_bytes > 0 ? workspace : NULL;
    TRY(check_operands(&PROBLEM, operands));
    if (plan->plan.workspace_bytes > 0 && workspace == NULL)
        return CONV_NO_WORKSPACE;
    TRY(check_pointer(operands[WORKSPACE], operands[WORKSPACE] != NULL, 256));
    if (ADDS_ZEROS)
        operands[BIAS] = plan->zeros;
    TRY(use_stream(plan, stream));
    return PLAN(run)(&plan->plan, plan->handle, operands);
}

void conv_destroy(conv_plan *plan)
{
    if (plan == NULL)
        return;
    PLAN(release)(&plan->plan);
#if ADDS_ZEROS
    if (plan->zeros != NULL)
        (void)cudaFree(plan->zeros);
#endif
    if (plan->handle != NULL)
        (void)cudnnDestroy(plan->handle);
    free(plan);
}
