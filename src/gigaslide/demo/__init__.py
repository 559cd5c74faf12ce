"""The demo cohort: one real slide, and synthetic whole-slide images with exact masks."""
