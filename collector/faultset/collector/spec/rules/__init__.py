"""What a spec may not say although every field of it is right by itself: the rules, and what they find."""
