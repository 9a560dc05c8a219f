"""Campaigns: many episodes side by side, resumed where they stopped."""
