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
    cpu_.set_current_seed(seed);
  }
  uint64_t current_seed() const override {
    return cpu_.current_seed();
  }
  uint64_t seed() override {
    return cpu_.unsafeGetGeneratorImpl()->seed();
  }
  void set_offset(uint64_t offset) override {
    cpu_.set_offset(offset);
  }
  uint64_t get_offset() const override {
    return cpu_.get_offset();
  }
  void set_state(const c10::TensorImpl& state) override {
    cpu_.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return cpu_.unsafeGetGeneratorImpl()->get_state();
  }

 private:
  VirtualGenerator* clone_impl() const override {
    return new VirtualGenerator(device_.index(), cpu_.clone());
  }

  at::Generator cpu_;
};

// One exchange at a time: the CPU's default generator is shared by all threads.
std::recursive_mutex exchange_mutex;

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

AsDefaultGenerator::AsDefaultGenerator(c10::DeviceIndex device) : device_(device) {
  exchange_mutex.lock();
  exchange();
}

AsDefaultGenerator::~AsDefaultGenerator() {
  exchange();
  exchange_mutex.unlock();
}

void AsDefaultGenerator::exchange() {
  at::Generator common = at::detail::getDefaultCPUGenerator();
  auto own = cpu_generator(default_generator(device_));
  std::scoped_lock locks(common.mutex(), own.mutex());
  const auto common_state = common.get_state();
  common.set_state(own.get_state());
  own.set_state(common_state);
}

} // namespace paceline
