// SPDX-License-Identifier: MIT
pragma solidity 0.8.30;

import {Authorization} from "../../src/gateway/Authorizations.sol";
import {Roles} from "../../src/gateway/Roles.sol";
import {Ownable} from "@openzeppelin/contracts/access/Ownable.sol";
import {GatewayTest} from "../support/GatewayTest.sol";
import {Signer} from "../support/Signer.sol";
import {vm} from "../support/Vm.sol";

contract RolesTest is GatewayTest {
    using Signer for Authorization;

    function test_theOwnerAppointsAndDismisses() public {
        vm.startPrank(owner);
        vm.expectEmit(address(gateway));
        emit Roles.RelayerChanged(bob.addr, true);
        gateway.setRelayer(bob.addr, true);
        vm.assertEq(gateway.isRelayer(bob.addr), true);
        gateway.setRelayer(bob.addr, false);
        vm.assertEq(gateway.isRelayer(bob.addr), false);

        vm.expectEmit(address(gateway));
        emit Roles.PauserChanged(pauser, bob.addr);
        gateway.setPauser(bob.addr);
        vm.assertEq(gateway.pauser(), bob.addr);
        vm.stopPrank();
    }

    function test_onlyTheOwnerAppoints(address anyone) public {
        vm.assume(anyone != owner && anyone != address(0));
        bytes memory refused = abi.encodeWithSelector(Ownable.OwnableUnauthorizedAccount.selector, anyone);
        vm.startPrank(anyone);
        vm.expectRevert(refused);
        gateway.setRelayer(anyone, true);
        vm.expectRevert(refused);
        gateway.setPauser(anyone);
        vm.expectRevert(refused);
        gateway.transferOwnership(anyone);
        vm.expectRevert(refused);
        gateway.acceptOwnership();
        vm.stopPrank();
    }

    function test_thePauserStopsAndTheOwnerStartsAgain() public {
        _pause();
        vm.assertEq(gateway.paused(), true);
        vm.expectRevert(abi.encodeWithSelector(Ownable.OwnableUnauthorizedAccount.selector, pauser));
        vm.prank(pauser);
        gateway.unpause();
        vm.prank(owner);
        gateway.unpause();
        vm.assertEq(gateway.paused(), false);
    }

    function test_onlyThePauserStops(address anyone) public {
        vm.assume(anyone != pauser);
        vm.expectRevert(abi.encodeWithSelector(Roles.OnlyPauser.selector, anyone, pauser));
        vm.prank(anyone);
        gateway.pause();
    }

    function test_ownershipMovesInTwoStepsAndNeverToNobody() public {
        vm.startPrank(owner);
        gateway.transferOwnership(bob.addr);
        vm.assertEq(gateway.owner(), owner);
        vm.expectRevert(Roles.OwnershipCannotBeRenounced.selector);
        gateway.renounceOwnership();
        vm.stopPrank();

        vm.prank(bob.addr);
        gateway.acceptOwnership();
        vm.assertEq(gateway.owner(), bob.addr);
    }

    // Mallory has every key of the operator: owner, pauser and relayer. Alice's money stays, and her exit opens.
    function test_attack_allKeysOfTheOperatorTogetherTakeNothing() public {
        _deposit(alice, 100 * USDC);
        vm.startPrank(owner);
        gateway.setRelayer(mallory.addr, true);
        gateway.setPauser(mallory.addr);
        gateway.transferOwnership(mallory.addr);
        vm.stopPrank();
        vm.startPrank(mallory.addr);
        gateway.acceptOwnership();

        Authorization memory forged =
            _payment(alice.addr, mallory.addr, 100 * USDC, 1).signed(mallory.key, _gatewayDomain());
        gateway.settleBatch(1, RECEIPT_ROOT, _rows(forged));
        vm.assertEq(_total(alice.addr), 100 * USDC);

        gateway.pause();
        vm.stopPrank();
        _initiateWithdrawal(alice, 100 * USDC);
        vm.roll(BLOCK + WITHDRAWAL_DELAY);
        _withdraw(alice);
        vm.assertEq(usdc.balanceOf(alice.addr), 100 * USDC);
    }
}
