import torch

from focusmem.lab.policy.muon import StackedMuon, orthogonalised


def test_moves_matrices_as_torchs_own_does():
    torch.manual_seed(0)
    shapes = [(8, 8), (8, 8), (12, 8), (8, 20), (12, 8)]
    ours = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
    theirs = [torch.nn.Parameter(one.detach().clone()) for one in ours]
    optimizers = [StackedMuon(ours, lr=0.02, weight_decay=0.1), torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1)]
    before = [one.detach().clone() for one in ours]
    for _ in range(5):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for one, other, start in zip(ours, theirs, before, strict=True):
        moved = (other - start).norm()
        assert (one - other).norm() < 0.01 * moved  # both iterate in bfloat16, in another order


def test_brings_singular_values_together():
    torch.manual_seed(0)
    for shape in ((3, 16, 16), (2, 24, 8), (2, 8, 24)):
        values = torch.linalg.svdvals(orthogonalised(torch.randn(shape)).float())
        assert values.min() > 0.3
        assert values.max() < 1.6


def test_state_comes_back():
    matrix = torch.nn.Parameter(torch.eye(4))
    first = StackedMuon([matrix], lr=0.1)
    matrix.grad = torch.ones(4, 4)
    first.step()
    second = StackedMuon([matrix], lr=0.1)
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(second.state[matrix]["momentum_buffer"], first.state[matrix]["momentum_buffer"])
