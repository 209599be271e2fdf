/* ---- Proposals of cuDNN's heuristics ---- */

#include <stdio.h>

#define MOST_NOTES 32
#define MOST_WORDS 512

static void put(char *text, const char *more)
{
    size_t used = strlen(text);
    if (used < MOST_WORDS - 1)
        strncat(text, more, MOST_WORDS - 1 - used);
}

static void put_number(char *text, const char *name, int64_t number)
{
    char word[48];
    snprintf(word, sizeof word, "%s%lld", name, (long long)number);
    put(text, word);
}

static void put_engine(char *text, const struct graph_choice *choice)
{
    int i;
    put_number(text, "cudnn/engine-", choice->engine);
    for (i = 0; i < choice->knob_count; i++) {
        put_number(text, i == 0 ? "[k" : ",k", choice->knobs[i].kind);
        put_number(text, "=", choice->knobs[i].value);
    }
    if (choice->knob_count > 0)
        put(text, "]");
}

static int get(descriptor whole, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t most,
               int64_t *count, void *values)
{
    CUDNN(cudnnBackendGetAttribute, (whole, name, type, most, count, values));
    return CONV_OK;
}

/* Whether the engine's arithmetic is allowed. Tensor cores take no fp32, so an engine that uses them rounds its inputs:
   to TF32, or, if it converts them itself, to fp16, which the permission for TF32 does not cover. */
static int check_notes(const struct problem *problem, descriptor engine)
{
    cudnnBackendNumericalNote_t notes[MOST_NOTES];
    int64_t count = 0, i;
    TRY(get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, &count, notes));
    for (i = 0; i < count; i++) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && problem->stored == CUDNN_DATA_FLOAT && !ALLOWS_TF32)
            return CONV_NOT_SUPPORTED;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS && problem->stored == CUDNN_DATA_FLOAT)
            return CONV_NOT_SUPPORTED;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && ONLY_DETERMINISTIC)
            return CONV_NOT_SUPPORTED;
    }
    return CONV_OK;
}

static int compare_knobs(const void *one, const void *other)
{
    return ((const struct knob *)one)->kind - ((const struct knob *)other)->kind;
}

/* The engine and the knobs of a configuration. */
static int read_config(struct owned *owned, const struct problem *problem, descriptor config,
                       struct graph_choice *choice)
{
    descriptor engine, knobs[MOST_KNOBS];
    int64_t count = 0, one = 0, i;
    TRY(make(owned, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    TRY(get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one, &engine));
    TRY(check_notes(problem, engine));
    TRY(get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &one, &choice->engine));
    for (i = 0; i < MOST_KNOBS; i++)
        TRY(make(owned, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]));
    TRY(get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_KNOBS, &count, knobs));
    choice->knob_count = (int)count;
    for (i = 0; i < count; i++) {
        cudnnBackendKnobType_t kind;
        TRY(get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one, &kind));
        TRY(get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one, &choice->knobs[i].value));
        choice->knobs[i].kind = (int)kind;
    }
    qsort(choice->knobs, (size_t)count, sizeof choice->knobs[0], compare_knobs);
    return CONV_OK;
}

/* Try one proposal. If it works, the plan owns its descriptors. */
static int try_config(struct graph_plan *plan, descriptor config, cudnnHandle_t handle, size_t limit, char *words)
{
    struct owned reading, making;
    struct graph_choice choice;
    size_t needed = 0;
    int code;
    memset(&choice, 0, sizeof choice);
    reading.count = making.count = 0;
    code = read_config(&reading, plan->problem, config, &choice);
    if (code == CONV_OK)
        code = make_execution(&making, config, handle, &plan->execution, &needed);
    if (code == CONV_OK && needed > limit)
        code = CONV_NO_WORKSPACE;
    destroy_all(&reading);
    if (code != CONV_OK) {
        destroy_all(&making);
        return code;
    }
    plan->owned.items[plan->owned.count++] = config;
    plan->owned.items[plan->owned.count++] = making.items[0];
    plan->workspace_bytes = needed;
    put_engine(words, &choice);
    return CONV_OK;
}

/* The first of `count` proposals that works; it is removed from them. */
static int try_configs(struct graph_plan *plan, descriptor *configs, int64_t count, cudnnHandle_t handle, size_t limit,
                       char *words)
{
    int code = CONV_NOT_SUPPORTED;
    int64_t i;
    for (i = 0; i < count && code != CONV_OK; i++) {
        code = try_config(plan, configs[i], handle, limit, words);
        if (code == CONV_OK)
            configs[i] = NULL;
    }
    return code;
}

static int make_configs(descriptor *configs, int64_t count)
{
    int64_t i;
    for (i = 0; i < count; i++)
        CUDNN(cudnnBackendCreateDescriptor, (CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    return CONV_OK;
}

static int walk(struct graph_plan *plan, descriptor heuristic, cudnnHandle_t handle, size_t limit, char *words)
{
    descriptor *configs;
    int64_t most = 0, count = 0, i;
    int code;
    TRY(get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &most, NULL));
    configs = (descriptor *)calloc((size_t)most + 1, sizeof *configs);
    if (configs == NULL)
        return CONV_NO_MEMORY;
    code = make_configs(configs, most);
    if (code == CONV_OK)
        code = get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, configs);
    if (code == CONV_OK)
        code = try_configs(plan, configs, count, handle, limit, words);
    for (i = 0; i < most; i++)
        if (configs[i] != NULL)
            (void)cudnnBackendDestroyDescriptor(configs[i]);
    free(configs);
    return code;
}

static int ask(struct graph_plan *plan, descriptor graph, cudnnBackendHeurMode_t mode, cudnnHandle_t handle,
               size_t limit, char *words)
{
    struct owned asked;
    descriptor heuristic;
    int code;
    asked.count = 0;
    code = make(&asked, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic);
    if (code == CONV_OK)
        code = set_part(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    if (code == CONV_OK)
        code = set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (code == CONV_OK)
        code = finalize(heuristic);
    if (code == CONV_OK)
        code = walk(plan, heuristic, handle, limit, words);
    destroy_all(&asked);
    return code;
}

/* The first engine that works, in the order of cuDNN's heuristics. */
static int heuristic_build(struct graph_plan *plan, const struct problem *problem, cudnnHandle_t handle, size_t limit,
                           char *words)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK};
    descriptor graph;
    int code = CONV_NOT_SUPPORTED, i;
    plan->problem = problem;
    TRY(make_graph(plan, handle, &graph));
    for (i = 0; i < 3 && code != CONV_OK; i++)
        code = ask(plan, graph, modes[i], handle, limit, words);
    return code;
}
