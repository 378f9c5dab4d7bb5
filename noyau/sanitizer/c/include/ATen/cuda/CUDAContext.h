#include "../../torch/extension.h"
