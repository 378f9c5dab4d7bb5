#include "../tvm/ffi/function.h"
