"""Cannot be read by Python: line 4."""

import torch
model = = torch.nn.Linear(8, 8)
