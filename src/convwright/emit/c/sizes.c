/* ---- Sizes, and their problem ---- */

/* More elements than any device holds, and far below the limit of 64 bits. */
#define MOST_ELEMENTS ((int64_t)1 << 46)

/* The number of sizes, and the range of the padding among them, which alone may be 0. */
#define NUMBERS (sizeof(conv_sizes) / sizeof(int64_t))
#define FIRST_PADDING 7
#define AFTER_PADDING 9

static bool in_range(const conv_sizes *sizes)
{
    int64_t numbers[NUMBERS];
    size_t i;
    memcpy(numbers, sizes, sizeof numbers);
    for (i = 0; i < NUMBERS; i++) {
        int64_t least = i >= FIRST_PADDING && i < AFTER_PADDING ? 0 : 1;
        if (numbers[i] < least || numbers[i] > INT32_MAX)
            return false;
    }
    return true;
}

static int64_t out_size(int64_t size, int64_t taps, int64_t pad, int64_t stride, int64_t dilation)
{
    int64_t room = size + 2 * pad - dilation * (taps - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
}

static bool fits(const int64_t *sizes)
{
    int64_t room = MOST_ELEMENTS;
    int i;
    for (i = 0; i < 4; i++)
        room /= sizes[i];
    return room > 0;
}

/* Whether both layouts have the same memory order. */
static bool is_both(const int64_t *sizes)
{
    return sizes[1] == 1 || sizes[2] * sizes[3] == 1;
}

static void lay_out(struct tensor *tensor, bool channels_last)
{
    const int64_t *sizes = tensor->sizes;
    int64_t *strides = tensor->strides;
    strides[0] = sizes[1] * sizes[2] * sizes[3];
    strides[1] = channels_last ? 1 : sizes[2] * sizes[3];
    strides[2] = channels_last ? sizes[3] * sizes[1] : sizes[3];
    strides[3] = channels_last ? sizes[1] : 1;
    tensor->dims = 4;
    tensor->alignment = 16;
}

static void set_sizes(struct tensor *tensor, int64_t n, int64_t c, int64_t h, int64_t w)
{
    tensor->sizes[0] = n;
    tensor->sizes[1] = c;
    tensor->sizes[2] = h;
    tensor->sizes[3] = w;
}

static int check_sizes(const conv_sizes *sizes)
{
    int64_t reach_h, reach_w;
    if (!in_range(sizes) || sizes->c % sizes->groups != 0 || sizes->k % sizes->groups != 0)
        return CONV_BAD_ARGUMENT;
    reach_h = out_size(sizes->h, sizes->r, sizes->pad_h, sizes->stride_h, sizes->dilation_h);
    reach_w = out_size(sizes->w, sizes->s, sizes->pad_w, sizes->stride_w, sizes->dilation_w);
    return reach_h > 0 && reach_w > 0 ? CONV_OK : CONV_BAD_ARGUMENT;
}

static void set_window(struct problem *problem, const conv_sizes *sizes)
{
    problem->spatial = 2;
    problem->before[0] = problem->after[0] = sizes->pad_h;
    problem->before[1] = problem->after[1] = sizes->pad_w;
    problem->stride[0] = sizes->stride_h;
    problem->stride[1] = sizes->stride_w;
    problem->dilation[0] = sizes->dilation_h;
    problem->dilation[1] = sizes->dilation_w;
    problem->groups = sizes->groups;
}

/* The problem for cuDNN. If all operands have the same memory order in both layouts, the graph API gets NHWC and the
   classic API NCHW. */
static int make_problem(struct problem *problem, const conv_sizes *sizes, bool classic)
{
    struct problem made = KIND;
    bool both, last;
    int64_t p, q;
    TRY(check_sizes(sizes));
    p = out_size(sizes->h, sizes->r, sizes->pad_h, sizes->stride_h, sizes->dilation_h);
    q = out_size(sizes->w, sizes->s, sizes->pad_w, sizes->stride_w, sizes->dilation_w);
    set_sizes(&made.x, sizes->n, sizes->c, sizes->h, sizes->w);
    set_sizes(&made.w, sizes->k, sizes->c / sizes->groups, sizes->r, sizes->s);
    set_sizes(&made.y, sizes->n, sizes->k, p, q);
    set_sizes(&made.bias, 1, sizes->k, 1, 1);
    if (!fits(made.x.sizes) || !fits(made.w.sizes) || !fits(made.y.sizes))
        return CONV_BAD_ARGUMENT;
    both = is_both(made.x.sizes) && is_both(made.y.sizes);
    last = classic ? CHANNELS_LAST && !both : CHANNELS_LAST || (both && is_both(made.w.sizes));
    lay_out(&made.x, last);
    lay_out(&made.w, last);
    lay_out(&made.y, last);
    lay_out(&made.bias, last && !classic);
    set_window(&made, sizes);
    *problem = made;
    return CONV_OK;
}
