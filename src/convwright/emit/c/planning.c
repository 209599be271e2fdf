/* ---- Planning a size ---- */

static void release_plans(struct entry *entry)
{
    graph_release(&entry->graph);
    classic_release(&entry->algorithm);
    memset(&entry->graph, 0, sizeof entry->graph);
    memset(&entry->algorithm, 0, sizeof entry->algorithm);
    entry->words[0] = '\0';
}

static const struct row *find_row(const conv_sizes *sizes)
{
    const struct row *row;
    for (row = TABLE; row != TABLE + ROWS; row++)
        if (memcmp(&row->sizes, sizes, sizeof *sizes) == 0)
            return row;
    return NULL;
}

/* Plan by a row of the table. An engine's number is valid for one version of cuDNN only. */
static int plan_by_row(struct entry *entry, const struct row *row, cudnnHandle_t handle, size_t limit)
{
    size_t *bytes = &entry->workspace_bytes;
    entry->classic = row->classic;
    TRY(make_problem(&entry->problem, &entry->sizes, row->classic));
    if (row->classic) {
        TRY(classic_build(&entry->algorithm, &entry->problem, &row->algorithm, handle));
        *bytes = entry->algorithm.workspace_bytes;
    } else {
        if (cudnnGetVersion() != CHOSEN_WITH_CUDNN)
            return CONV_OTHER_CUDNN;
        TRY(graph_build(&entry->graph, &entry->problem, &row->engine, handle));
        *bytes = entry->graph.workspace_bytes;
    }
    if (*bytes > limit)
        return CONV_NO_WORKSPACE;
    put(entry->words, row->id);
    put(entry->words, " by the table");
    return CONV_OK;
}

static int plan_by_heuristic(struct entry *entry, cudnnHandle_t handle, size_t limit)
{
    entry->classic = false;
    TRY(make_problem(&entry->problem, &entry->sizes, false));
    TRY(heuristic_build(&entry->graph, &entry->problem, handle, limit, entry->words));
    entry->workspace_bytes = entry->graph.workspace_bytes;
    put(entry->words, " by the heuristic");
    return CONV_OK;
}

static int plan_entry(struct entry *entry, cudnnHandle_t handle, size_t limit)
{
    const struct row *row = find_row(&entry->sizes);
    int code = CONV_NOT_SUPPORTED;
    if (row != NULL)
        code = plan_by_row(entry, row, handle, limit);
    if (code != CONV_OK) {
        release_plans(entry);
        code = plan_by_heuristic(entry, handle, limit);
    }
#if ADDS_ZEROS
    if (code == CONV_OK && entry->zeros == NULL)
        code = make_zeros(&entry->problem, &entry->zeros);
#endif
    if (code != CONV_OK)
        release_plans(entry); /* the next call starts over */
    entry->planned = code == CONV_OK;
    return code;
}

/* The entry of these sizes, planned and locked. */
static int enter(conv_cache *cache, const conv_sizes *sizes, struct entry **entered)
{
    struct entry *entry;
    struct lane *lane;
    int code = CONV_OK;
    if (cache == NULL || sizes == NULL)
        return CONV_BAD_ARGUMENT;
    TRY(check_sizes(sizes));
    entry = find_entry(cache, sizes);
    if (entry == NULL)
        return CONV_NO_MEMORY;
    pthread_mutex_lock(&entry->lock);
    if (!entry->planned) {
        lane = take_lane(cache, NULL);
        code = plan_entry(entry, lane->handle, cache->workspace_limit);
        leave_lane(cache, lane);
    }
    if (code != CONV_OK)
        pthread_mutex_unlock(&entry->lock);
    else
        *entered = entry;
    return code;
}

int conv_workspace_bytes(conv_cache *cache, const conv_sizes *sizes, size_t *bytes)
{
    struct entry *entry;
    if (bytes == NULL)
        return CONV_BAD_ARGUMENT;
    TRY(enter(cache, sizes, &entry));
    *bytes = entry->workspace_bytes;
    pthread_mutex_unlock(&entry->lock);
    return CONV_OK;
}

int conv_choice(conv_cache *cache, const conv_sizes *sizes, char *text, size_t bytes)
{
    struct entry *entry;
    if (text == NULL || bytes == 0)
        return CONV_BAD_ARGUMENT;
    TRY(enter(cache, sizes, &entry));
    snprintf(text, bytes, "%s", entry->words);
    pthread_mutex_unlock(&entry->lock);
    return CONV_OK;
}
