import torch
from PIL import Image

from focusmem.lab.policy.fast_vision import see_all
from focusmem.model.backbone import Backbone
from focusmem.schemas import Screenshot


@torch.no_grad()
def test_equals_the_librarys_tower():
    backbone = Backbone.toy()
    torch.manual_seed(0)
    pixels = torch.randint(0, 256, (3, 96, 160, 3), dtype=torch.uint8)
    expected = backbone.see([Screenshot.from_image(Image.fromarray(one.numpy())) for one in pixels])
    main, deep = see_all(backbone.model.model.visual, pixels)
    torch.testing.assert_close(main, torch.stack([one.main_VD for one in expected]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(deep, torch.stack([one.deep_LVD for one in expected], dim=1), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_no_pictures_have_the_same_shapes_as_some():
    tower = Backbone.toy().model.model.visual
    pixels = torch.zeros(2, 96, 160, 3, dtype=torch.uint8)
    main, deep = see_all(tower, pixels)
    no_main, no_deep = see_all(tower, pixels[:0])
    assert no_main.shape == main[:0].shape
    assert no_deep.shape == deep[:, :0].shape
    assert (no_main.dtype, no_deep.dtype) == (main.dtype, deep.dtype)
