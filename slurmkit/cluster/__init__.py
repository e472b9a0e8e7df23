"""What the cluster is: nodes, partitions, fabric and the controller's own settings."""
