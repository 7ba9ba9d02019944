"""Train the demo's model: a small CNN for the handwritten digits that scikit-learn ships.

The files that it writes (``digits.onnx``, ``test.npz``) are in the repository, so that the demo needs neither
PyTorch nor scikit-learn::

    pip install torch==2.13.0 onnxscript onnx scikit-learn
    python examples/digits/train.py

The data are 1,797 real 8x8 scans (UCI "Optical Recognition of Handwritten Digits"), pixels 0..16. A fifth,
360 images, is held out before training and never seen by it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

HERE = Path(__file__).resolve().parent
SEED = 20261121
EPOCHS = 60


class DigitsNet(nn.Module):
    """Two convolutions, a pool, a third convolution, a pool, two dense layers: 45 thousand weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.3)
        self.hidden = nn.Linear(64 * 2 * 2, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv1(image))
        x = self.pool(torch.relu(self.conv2(x)))
        x = self.pool(torch.relu(self.conv3(x)))
        x = torch.relu(self.hidden(self.dropout(x.flatten(1))))
        return self.out(x)


def split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and held-out images (uint8 [n, 1, 8, 8], 0..16) and labels (uint8 [n])."""
    data = load_digits()
    images = data.images.astype(np.uint8)[:, None]
    labels = data.target.astype(np.uint8)
    train_x, test_x, train_y, test_y = train_test_split(
        images, labels, test_size=360, stratify=labels, random_state=SEED
    )
    return train_x, train_y, test_x, test_y


def train(images: np.ndarray, labels: np.ndarray) -> DigitsNet:
    """Adam with one-cycle learning rate over seeded batches; one thread, so that a run can be repeated."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    model = DigitsNet()
    x, y = torch.from_numpy(images).float() / 16, torch.from_numpy(labels).long()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    steps = EPOCHS * (len(x) // 64 + 1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(64):
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def export(model: DigitsNet, path: Path) -> None:
    """Write ONNX with a symbolic batch."""
    program = torch.onnx.export(
        model,
        (torch.zeros(2, 1, 8, 8),),
        dynamo=True,
        input_names=["image"],
        output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch", min=1)},),
        external_data=False,
    )
    for node in program.model.graph:
        node.metadata_props.clear()  # stack traces with the paths of the machine that exported
    program.save(str(path), external_data=False)


def main() -> None:
    train_x, train_y, test_x, test_y = split()
    model = train(train_x, train_y)
    with torch.no_grad():
        guess = model(torch.from_numpy(test_x).float() / 16).argmax(1).numpy()
    np.savez_compressed(HERE / "test.npz", images=test_x, labels=test_y)
    export(model, HERE / "digits.onnx")
    print(f"accuracy on {len(test_y)} held-out images: {(guess == test_y).mean():.4f}")


if __name__ == "__main__":
    main()
