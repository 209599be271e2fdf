/* ---- One engine, ready to run ---- */

static int make_config(struct owned *owned, descriptor graph, const struct graph_choice *choice, descriptor *config)
{
    descriptor engine, chosen[MOST_KNOBS];
    int i;
    TRY(make(owned, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    TRY(set_part(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph));
    TRY(set_numbers(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1, &choice->engine));
    TRY(finalize(engine));
    for (i = 0; i < choice->knob_count; i++) {
        cudnnBackendKnobType_t kind = (cudnnBackendKnobType_t)choice->knobs[i].kind;
        TRY(make(owned, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &chosen[i]));
        TRY(set(chosen[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &kind));
        TRY(set_numbers(chosen[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 1, &choice->knobs[i].value));
        TRY(finalize(chosen[i]));
    }
    TRY(make(owned, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, config));
    TRY(set_part(*config, CUDNN_ATTR_ENGINECFG_ENGINE, engine));
    if (choice->knob_count > 0)
        TRY(set(*config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, choice->knob_count, chosen));
    return finalize(*config);
}

static int make_execution(struct owned *owned, descriptor config, cudnnHandle_t handle, descriptor *execution,
                          size_t *workspace_bytes)
{
    int64_t needed = 0, count = 0;
    TRY(make(owned, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, execution));
    TRY(set_part(*execution, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config));
    TRY(set(*execution, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
    TRY(finalize(*execution));
    CUDNN(cudnnBackendGetAttribute,
          (*execution, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &needed));
    *workspace_bytes = (size_t)needed;
    return CONV_OK;
}

static int graph_build(struct graph_plan *plan, const struct problem *problem, const struct graph_choice *choice,
                       cudnnHandle_t handle)
{
    descriptor graph, config;
    plan->problem = problem;
    TRY(make_graph(plan, handle, &graph));
    TRY(make_config(&plan->owned, graph, choice, &config));
    return make_execution(&plan->owned, config, handle, &plan->execution, &plan->workspace_bytes);
}
