/*@about@*/

/* The part below the line `This problem` is for this problem; the rest is the same in every such file. */

#include "conv.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>
#include <cudnn.h>
