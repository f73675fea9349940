// The threads of the autograd engine, one for each device.
#pragma once

namespace paceline {

// False if a backward pass has run with devices of another kind, and fewer of them.
bool backward_can_serve(int num_devices);

// Gives the engine threads for the devices if it has started without any.
void serve_backward();

} // namespace paceline
