#include "twin.h"

#include <ATen/core/TensorBase.h>
#include <c10/core/TensorImpl.h>

#include "device.h"
#include "storage.h"

namespace paceline {
namespace {

at::Tensor over(c10::Storage storage, c10::DispatchKey key, const at::Tensor& like) {
  auto made = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(key), like.dtype());
  auto* impl = made.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (C10_UNLIKELY(like.is_conj())) {
    impl->_set_conj(true);
  }
  if (C10_UNLIKELY(like.is_neg())) {
    impl->_set_neg(true);
  }
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) {
    impl->set_wrapped_number(true);
  }
  return made;
}

void check_dense(const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.layout() == c10::kStrided && !tensor.is_nested() && !tensor.is_quantized() &&
          tensor.has_storage(),
      "virtual devices hold dense tensors; this one is ",
      tensor.is_nested() ? "nested" : tensor.is_quantized() ? "quantized" : "not strided",
      " (layout ",
      tensor.layout(),
      "). Move it to the CPU first.");
}

} // namespace

at::Tensor cpu_twin(const at::Tensor& tensor) {
  if (!is_virtual(tensor)) {
    return tensor;
  }
  check_dense(tensor);
  return over(cpu_storage(tensor.storage()), c10::DispatchKey::CPU, tensor);
}

void Correspondence::add(const c10::Storage& cpu, const c10::Storage& shell) {
  pairs_.emplace_back(cpu, shell);
}

void Correspondence::add_tensor(const at::Tensor& twin, const at::Tensor& original) {
  add(twin.storage(), original.storage());
}

const c10::Storage* Correspondence::find(const c10::Storage& cpu) const {
  for (const auto& [known, shell] : pairs_) {
    if (known.unsafeGetStorageImpl() == cpu.unsafeGetStorageImpl()) {
      return &shell;
    }
  }
  return nullptr;
}

at::Tensor to_virtual(const at::Tensor& cpu, c10::DeviceIndex device, Correspondence& known) {
  if (!cpu.defined() || is_virtual(cpu)) {
    return cpu;
  }
  check_dense(cpu);
  const auto* shell = known.find(cpu.storage());
  if (shell == nullptr) {
    known.add(cpu.storage(), wrap_storage(cpu.storage(), device));
    shell = known.find(cpu.storage());
  }
  return over(*shell, c10::DispatchKey::PrivateUse1, cpu);
}

void follow_twin(const at::Tensor& original, const at::Tensor& twin, Correspondence& known) {
  auto* impl = original.unsafeGetTensorImpl();
  if (twin.storage().unsafeGetStorageImpl() == cpu_storage(original.storage()).unsafeGetStorageImpl()) {
    refresh_shell(original.storage());
  } else {
    impl->set_storage_keep_dtype(to_virtual(twin, original.device().index(), known).storage());
  }
  if (original.sizes() != twin.sizes() || original.strides() != twin.strides() ||
      original.storage_offset() != twin.storage_offset()) {
    impl->set_sizes_and_strides(twin.sizes(), twin.strides(), twin.storage_offset());
  }
  // Some solvers conjugate their result by its mark instead of its values.
  impl->_set_conj(twin.is_conj());
  impl->_set_neg(twin.is_neg());
}

} // namespace paceline
