// What PyTorch's core asks of a device type: the current device, streams and events.

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <algorithm>

#include "device.h"
#include "timeline.h"

namespace paceline {
namespace {

// An event is the moment at which all that its stream held when it was recorded is done.
struct Event {
  Moment done;
};

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  static constexpr c10::DeviceType static_type = kVirtual;

  c10::DeviceType type() const override {
    return kVirtual;
  }

  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count();
  }

  c10::Device getDevice() const override {
    return {kVirtual, current_device()};
  }

  c10::Device exchangeDevice(c10::Device device) const override {
    const auto before = getDevice();
    setDevice(device);
    return before;
  }

  void setDevice(c10::Device device) const override {
    check_index(device.index());
    set_current_device(device.index());
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    set_current_device(device.index());
  }

  c10::Stream getStream(c10::Device device) const override {
    return current_stream(resolve_index(device));
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kVirtual, resolve_index(device)));
  }

  c10::Stream getNewStream(c10::Device device, int) const override {
    return new_stream(resolve_index(device));
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return new_stream(resolve_index(device));
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    return exchange_stream(stream);
  }

  bool queryStream(const c10::Stream& stream) const override {
    return stream_done(stream) <= now();
  }

  void synchronizeStream(const c10::Stream& stream) const override {
    wait_until(stream_done(stream));
  }

  void synchronizeDevice(const c10::DeviceIndex device) const override {
    check_index(device);
    wait_until(device_done(device));
  }

  void record(
      void** event,
      const c10::Stream& stream,
      const c10::DeviceIndex,
      const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new Event();
    }
    static_cast<Event*>(*event)->done = std::max(now(), stream_done(stream));
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      delay_stream(stream, static_cast<Event*>(event)->done);
    }
  }

  bool queryEvent(void* event) const override {
    return event == nullptr || static_cast<Event*>(event)->done <= now();
  }

  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      wait_until(static_cast<Event*>(event)->done);
    }
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }

  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    constexpr double kNanosecondsPerMillisecond = 1e6;
    const auto between = static_cast<Event*>(second)->done - static_cast<Event*>(first)->done;
    return static_cast<double>(between) / kNanosecondsPerMillisecond;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

} // namespace
} // namespace paceline
