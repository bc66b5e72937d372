"""Networks: encoders, one page for each method, features as they take them, and the model that is saved."""
