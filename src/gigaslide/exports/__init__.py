"""Tissue masks as the tools that cut patches read them, as if their own segmentation had made them."""
