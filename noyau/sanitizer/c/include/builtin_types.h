#include "noyau_cuda.h"
