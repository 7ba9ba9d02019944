"""Pictures of partitioned graphs, with the standard library alone: layout, SVG, Mermaid and DOT."""
