// What PyTorch asks of "the accelerator" beyond the device guard.

#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "device.h"
#include "generator.h"
#include "hooks.h"
#include "storage.h"

namespace paceline {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return device_count() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  void init() const override {}

  c10::DeviceIndex deviceCount() const override {
    return device_count();
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    check_index(device);
    set_current_device(device);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const auto before = current_device();
    setCurrentDevice(device);
    return before;
  }
  // A negative index means "leave it as it is".
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return device < 0 ? current_device() : exchangeDevice(device);
  }

  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    if (device < 0) {
      return new_generator(current_device());
    }
    check_index(device);
    return new_generator(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device < 0 ? current_device() : device);
  }

  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return pinned_allocator();
  }

  // UntypedStorage.resize_, by which FSDP frees and refills its parameters.
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

} // namespace

void register_hooks() {
  static auto* hooks = new Hooks();
  at::RegisterPrivateUse1HooksInterface(hooks);
}

} // namespace paceline
