"""HotelReservation: its spec (`app.yaml`), its own steps, and the persona of the programs it stands for."""
