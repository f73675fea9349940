#include "backward.h"

#include <torch/csrc/autograd/engine.h>

namespace paceline {
namespace {

using torch::autograd::Engine;

// The engine counts devices once, in the first backward pass of the process. In a notebook that pass
// may have been before the devices came, and there is no public way to let it count again.
class OpenEngine : public Engine {
 public:
  static bool has_started(Engine& engine) {
    return engine.*(&OpenEngine::thread_pool_shared_) != nullptr;
  }
  static int num_devices(Engine& engine) {
    return static_cast<int>((engine.*(&OpenEngine::device_ready_queues_)).size());
  }
  static void start(Engine& engine) {
    (engine.*(&OpenEngine::start_device_threads))();
  }
};

} // namespace

bool backward_can_serve(int num_devices) {
  auto& engine = Engine::get_default_engine();
  const int served = OpenEngine::num_devices(engine);
  return !OpenEngine::has_started(engine) || served == 0 || served >= num_devices;
}

void serve_backward() {
  auto& engine = Engine::get_default_engine();
  if (OpenEngine::has_started(engine) && OpenEngine::num_devices(engine) == 0) {
    OpenEngine::start(engine);
  }
}

} // namespace paceline
