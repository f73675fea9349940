// Making tensors, and looking at their memory in another way: nothing here computes.

#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "device.h"
#include "storage.h"

namespace paceline {
namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check_factory(std::optional<c10::Layout> layout, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      c10::layout_or_default(layout) == c10::kStrided, "virtual devices hold dense tensors, not ", *layout);
  TORCH_CHECK(!c10::pinned_memory_or_default(pin_memory), "Only dense CPU tensors can be pinned");
}

at::Tensor empty(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory,
    std::optional<at::MemoryFormat> memory_format) {
  check_factory(layout, pin_memory);
  const CurrentDevice allocating_on(resolve_index(device));
  return at::detail::empty_generic(
      size, virtual_allocator(), kKeys, c10::dtype_or_default(dtype), memory_format);
}

at::Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<c10::Layout> layout,
    std::optional<c10::Device> device,
    std::optional<bool> pin_memory) {
  check_factory(layout, pin_memory);
  const CurrentDevice allocating_on(resolve_index(device));
  return at::detail::empty_strided_generic(
      size, stride, virtual_allocator(), kKeys, c10::dtype_or_default(dtype));
}

// Forward-mode differentiation marks a derivative that is zero by a tensor without memory.
at::Tensor efficientzerotensor(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<c10::Layout>,
    std::optional<c10::Device> device,
    std::optional<bool>) {
  at::native::ZeroTensorAllocator nothing(c10::Device(kVirtual, resolve_index(device)));
  return at::detail::empty_generic(
      size, &nothing, kKeys.add(c10::DispatchKey::ZeroTensor), c10::dtype_or_default(dtype), std::nullopt);
}

void grow_to_hold(const at::Tensor& tensor) {
  const auto needed = at::detail::computeStorageNbytes(
      tensor.sizes(), tensor.strides(), tensor.dtype().itemsize(), tensor.storage_offset());
  if (tensor.numel() != 0 && needed > tensor.storage().nbytes()) {
    resize_storage(tensor.storage(), needed);
  }
}

at::Tensor& set_storage_at(
    at::Tensor& self,
    at::Storage source,
    int64_t offset,
    at::IntArrayRef size,
    at::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  auto* impl = self.unsafeGetTensorImpl();
  if (stride.data() == nullptr) {
    impl->set_storage_offset(offset);
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride, offset);
  }
  grow_to_hold(self);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto num_elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_at(self, std::move(source), 0, {num_elements}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  if (self.is_same(source)) {
    return self;
  }
  return set_storage_at(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  const CurrentDevice allocating_on(self.device().index());
  c10::Storage fresh(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), 0, virtual_allocator(), /*resizable=*/true));
  return set_storage_at(self, std::move(fresh), 0, {0}, {});
}

// A kernel has run when its call returns: no other stream can still be using the memory.
void record_stream(at::Tensor&, at::Stream) {}

} // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", empty);
  library.impl("empty_strided", empty_strided);
  library.impl("_efficientzerotensor", efficientzerotensor);
  library.impl("as_strided", at::native::as_strided_tensorimpl);
  library.impl("view", at::native::view);
  library.impl("_reshape_alias", at::native::_reshape_alias);
  library.impl("unfold", at::native::unfold);
  library.impl("view_as_real", at::native::view_as_real);
  library.impl("view_as_complex", at::native::view_as_complex);
  library.impl("set_.source_Storage", set_storage);
  library.impl("set_.source_Storage_storage_offset", set_storage_at);
  library.impl("set_.source_Tensor", set_tensor);
  library.impl("set_", set_nothing);
  library.impl("record_stream", record_stream);
}

} // namespace paceline
