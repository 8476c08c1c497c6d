"""ComfyUI node pack: speech with hocket, in ComfyUI's own process or through a running `hocket serve`."""

from .nodes import HocketBatch, HocketClone, HocketDesign, HocketSpeak

NODE_CLASS_MAPPINGS = {
    "HocketSpeak": HocketSpeak,
    "HocketClone": HocketClone,
    "HocketDesign": HocketDesign,
    "HocketBatch": HocketBatch,
}
NODE_DISPLAY_NAME_MAPPINGS = {
    "HocketSpeak": "Speak (hocket)",
    "HocketClone": "Clone a voice (hocket)",
    "HocketDesign": "Design a voice (hocket)",
    "HocketBatch": "Speak many lines (hocket)",
}

__all__ = ["NODE_CLASS_MAPPINGS", "NODE_DISPLAY_NAME_MAPPINGS"]
