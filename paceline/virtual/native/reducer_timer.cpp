// DistributedDataParallel times its own phases with a timer per device type, and warns without one.

#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "device.h"

namespace paceline {
namespace {

class ReducerTimer final : public c10d::Timer {
 public:
  explicit ReducerTimer(c10::Device) {}

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const int64_t began = getTimeRef(start);
    const int64_t ended = getTimeRef(end);
    if (began == c10d::kUnsetTime || ended == c10d::kUnsetTime || ended < began) {
      return std::nullopt;
    }
    return ended - began;
  }
};

} // namespace
} // namespace paceline

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, paceline::kVirtual, paceline::ReducerTimer)
} // namespace c10d
