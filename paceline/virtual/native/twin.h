// Tensors in both worlds: the CPU twin of a virtual tensor, and the virtual tensor of a CPU result.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <utility>

namespace paceline {

inline bool is_virtual(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == c10::DeviceType::PrivateUse1;
}

// A CPU tensor over the same bytes. Tensors of other devices are returned as they are.
at::Tensor cpu_twin(const at::Tensor& tensor);

// Which virtual storage belongs to which CPU storage during one call. It is how a result that
// shares memory with an argument, or with another result, shares it on the virtual device too.
class Correspondence {
 public:
  void add(const c10::Storage& cpu, const c10::Storage& shell);
  void add_tensor(const at::Tensor& twin, const at::Tensor& original);
  const c10::Storage* find(const c10::Storage& cpu) const;

 private:
  c10::SmallVector<std::pair<c10::Storage, c10::Storage>, 8> pairs_; // CPU storage, its shell
};

// A virtual tensor over the bytes of a CPU tensor, counted on the device if they are new there.
at::Tensor to_virtual(const at::Tensor& cpu, c10::DeviceIndex device, Correspondence& known);

// Gives a virtual tensor what a kernel did to its twin: another size, or other memory.
void follow_twin(const at::Tensor& original, const at::Tensor& twin, Correspondence& known);

} // namespace paceline
