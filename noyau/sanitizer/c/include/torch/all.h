#include "../torch/extension.h"
