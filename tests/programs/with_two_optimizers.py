"""A generator and a critic, the critic stepping twice as often: three optimizer calls make one step."""

import torch

generator, critic = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
generator_optimizer = torch.optim.Adam(generator.parameters())
critic_optimizer = torch.optim.SGD(critic.parameters(), lr=1e-3)
for _ in range(60):
    for _ in range(2):
        critic_optimizer.zero_grad()
        (critic(generator(torch.randn(4, 8)).detach()).mean() - critic(torch.randn(4, 8)).mean()).backward()
        critic_optimizer.step()
    generator_optimizer.zero_grad()
    (-critic(generator(torch.randn(4, 8))).mean()).backward()
    generator_optimizer.step()
