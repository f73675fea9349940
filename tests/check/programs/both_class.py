"""Code 3 as a class: a DataLoader, settings in an object, clipping after unscale_, zero_grad(set_to_none)."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Trainer:
    def __init__(self, settings):
        self.accumulation_steps = settings.accumulation_steps
        self.rank = dist.get_rank()
        layers = [torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)]
        self.model = DistributedDataParallel(torch.nn.Sequential(*layers))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu")

    def compute_loss(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(self.model(x), y) / self.accumulation_steps

    def train(self, loader):
        self.optimizer.zero_grad(set_to_none=True)
        for number, (x, y) in enumerate(loader):
            if (number + 1) % self.accumulation_steps != 0:
                with self.model.no_sync():
                    self.scaler.scale(self.compute_loss(x, y)).backward()
                continue
            self.scaler.scale(self.compute_loss(x, y)).backward()
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=1.0)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--accumulation-steps", type=int, default=4)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    dataset = TensorDataset(torch.randn(384, 16), torch.randint(0, 4, (384,)))
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset, seed=1))
    Trainer(parser.parse_args()).train(loader)
    dist.destroy_process_group()
