"""What a run is made of: its recipe, its folder, its checkpoints, its environment."""
