"""Graphs in and out: tables, stores, other libraries, published datasets; and files that are whole or not there."""
