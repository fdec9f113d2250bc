"""Networks: named attentions, recipes that files can hold, saving and loading."""

from foveate.groups import p4cnn, z2cnn
from foveate.models.backbones import Backbone, backbone, backbones, register_backbone
from foveate.models.equivariant import allcnn, densenet, resnet44
from foveate.models.files import LoadError, load, save
from foveate.models.recipe import Recipe, build, freeze, parameter_count
from foveate.models.registry import Entry, attaching, entry, names, register
from foveate.models.tiny import TinyCNN
from foveate.models.vggs import vgg, vgg_aib, vgg_att2, vgg_att3, vgg_dvib, vgg_gap, vgg_pan
from foveate.models.wide_resnets import wrn, wrn_abn, wrn_aib

__all__ = [
    "Backbone",
    "Entry",
    "LoadError",
    "Recipe",
    "TinyCNN",
    "allcnn",
    "attaching",
    "backbone",
    "backbones",
    "build",
    "densenet",
    "entry",
    "freeze",
    "load",
    "names",
    "p4cnn",
    "parameter_count",
    "register",
    "register_backbone",
    "resnet44",
    "save",
    "vgg",
    "vgg_aib",
    "vgg_att2",
    "vgg_att3",
    "vgg_dvib",
    "vgg_gap",
    "vgg_pan",
    "wrn",
    "wrn_abn",
    "wrn_aib",
    "z2cnn",
]
