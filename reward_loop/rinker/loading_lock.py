"""Models are loaded one at a time in a process.

While transformers loads a model it replaces functions of torch and of itself for the whole process (torch.nn.init, the tying of
weights, the default type) and puts back what it found. Two loads that overlap put back each other's replacements: from then on no
model ties its weights, and no new layer is initialised.
"""

from __future__ import annotations

import threading

LOADING = threading.RLock()
"""To be held around from_pretrained and from_config of a model, and around whatever initialises new layers, such as peft's."""
