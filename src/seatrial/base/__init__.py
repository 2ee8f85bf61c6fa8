"""The ground floor: what every other package may import. Imports no other package of Seatrial."""
