// Dropout. The CPU's kernel draws without naming a generator; made of the device's own operators, it
// draws from the device's.

#include <ATen/core/Tensor.h>
#include <ATen/ops/native_dropout_native.h>
#include <torch/library.h>

namespace paceline {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("native_dropout", at::native::native_dropout_cpu);
}

} // namespace paceline
