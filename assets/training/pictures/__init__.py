"""Pictures with questions and answers: drawn shapes, charts, printed text, icons, and pictures that show nothing."""
