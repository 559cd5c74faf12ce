"""The report: charts and pictures as PNG, and one page that holds them all."""
