"""What ``make bench`` measures, and the page that it writes."""
