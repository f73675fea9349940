#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>

#include <mutex>
#include <vector>

#include "device.h"

namespace paceline {
namespace {

class VirtualGenerator final : public c10::GeneratorImpl {
 public:
  VirtualGenerator(c10::DeviceIndex device, at::Generator cpu)
      : GeneratorImpl(c10::Device(kVirtual, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu_(std::move(cpu)) {}

  const at::Generator& cpu() const {
    return cpu_;
  }

  void set_current_seed(uint64_t seed) override {
    const auto lock = locked();
    cpu_.set_current_seed(seed);
  }
  uint64_t current_seed() const override {
    const auto lock = locked();
    return cpu_.current_seed();
  }
  uint64_t seed() override {
    const auto lock = locked();
    return cpu_.unsafeGetGeneratorImpl()->seed();
  }
  void set_offset(uint64_t offset) override {
    const auto lock = locked();
    cpu_.set_offset(offset);
  }
  uint64_t get_offset() const override {
    const auto lock = locked();
    return cpu_.get_offset();
  }
  void set_state(const c10::TensorImpl& state) override {
    const auto lock = locked();
    cpu_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    const auto lock = locked();
    return cpu_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  // A kernel that draws holds the lock of the CPU's generator, and knows no other.
  std::unique_lock<std::mutex> locked() const {
    return std::unique_lock(cpu_.unsafeGetGeneratorImpl()->mutex_);
  }

  VirtualGenerator* clone_impl() const override {
    const auto lock = locked();
    return new VirtualGenerator(device_.index(), cpu_.clone());
  }

  at::Generator cpu_;
};

} // namespace

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<VirtualGenerator>(device, at::detail::createCPUGenerator());
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  // Never destroyed, because tensors of the program may outlive this library's statics.
  static const auto* generators = [] {
    auto* made = new std::vector<at::Generator>();
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) {
      made->push_back(new_generator(i));
    }
    return made;
  }();
  check_index(device);
  return (*generators)[device];
}

at::Generator cpu_generator(const at::Generator& generator) {
  TORCH_CHECK(
      generator.device().type() == kVirtual,
      "Expected a 'virtual' device type for generator but found '",
      generator.device().type(),
      "'");
  return static_cast<VirtualGenerator*>(generator.unsafeGetGeneratorImpl())->cpu();
}

} // namespace paceline
