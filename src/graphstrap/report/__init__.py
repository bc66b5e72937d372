"""What a person looks at: a picture, and a page that needs nothing but a browser."""
