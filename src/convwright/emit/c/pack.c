/* ---- Runs, with packs of the operands' addresses ---- */

static int make_pack(struct graph_plan *plan, const void *const *operands, struct pack *pack)
{
    const void *pointers[PLACES];
    int i;
    CUDNN(cudnnBackendCreateDescriptor, (CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack->finished));
    for (i = 0; i < plan->operand_count; i++)
        pointers[i] = operands[plan->places[i]];
    TRY(set_numbers(pack->finished, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, plan->operand_count, plan->uids));
    TRY(set(pack->finished, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, plan->operand_count, pointers));
    TRY(set(pack->finished, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &operands[WORKSPACE]));
    TRY(finalize(pack->finished));
    memcpy(pack->operands, operands, sizeof pack->operands);
    return CONV_OK;
}

static void drop_pack(struct pack *pack)
{
    if (pack->finished != NULL)
        (void)cudnnBackendDestroyDescriptor(pack->finished);
    memset(pack, 0, sizeof *pack);
}

/* The pack for these addresses: a kept one, or else a new one that replaces the oldest. */
static int find_pack(struct graph_plan *plan, const void *const *operands, descriptor *found)
{
    struct pack *pack = NULL;
    int i, code;
    for (i = 0; i < KEPT_PACKS; i++) {
        pack = &plan->packs[i];
        if (pack->finished != NULL && memcmp(pack->operands, operands, sizeof pack->operands) == 0) {
            *found = pack->finished;
            return CONV_OK;
        }
    }
    pack = &plan->packs[plan->next_pack];
    drop_pack(pack);
    code = make_pack(plan, operands, pack);
    if (code != CONV_OK) {
        drop_pack(pack);
        return code;
    }
    plan->next_pack = (plan->next_pack + 1) % KEPT_PACKS;
    *found = pack->finished;
    return CONV_OK;
}

static int graph_run(struct graph_plan *plan, cudnnHandle_t handle, const void *const *operands)
{
    descriptor pack;
    TRY(find_pack(plan, operands, &pack));
    CUDNN(cudnnBackendExecute, (handle, plan->execution, pack));
    return CONV_OK;
}

static void graph_release(struct graph_plan *plan)
{
    int i;
    for (i = 0; i < KEPT_PACKS; i++)
        drop_pack(&plan->packs[i]);
    destroy_all(&plan->owned);
}
